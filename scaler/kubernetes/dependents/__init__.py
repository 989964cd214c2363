"""Everything of a job besides the pods whose number plans change.

upkeep           services, a PodGroup, a disruption budget, and the data for each pod's agent
gangs            pods whose scheduling gates open together, and that release their nodes together
roles            replicas whose size no plan changes: parameter servers, chief, evaluator
autoscalers      HorizontalPodAutoscalers and VerticalPodAutoscalers that target a job
rigid, worlds    worlds of jobs that run without Brain's agent, derived from their pods
own_pod          an operator's knowledge of the pod that it runs in
"""
