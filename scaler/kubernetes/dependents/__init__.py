"""The dependents of a job: objects and worlds in addition to the pods that plans scale.

upkeep           services, a PodGroup, a disruption budget, and the data for each pod's agent
gangs            pods whose scheduling gates open together, and that release their nodes together
roles            replicas whose size no plan changes: parameter servers, chief, evaluator
autoscalers      HorizontalPodAutoscalers and VerticalPodAutoscalers that target a job
rigid, worlds    worlds of jobs without Brain's agent, as their pods show them
own_pod          an operator's knowledge of the pod that it runs in
"""
