"""The scaler as an operator of Kubernetes. Loaded only by ``brain-scale --kubernetes``."""
