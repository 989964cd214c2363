"""The few-shot bake-off of step-time models on the tables of Pollux and Sia."""
