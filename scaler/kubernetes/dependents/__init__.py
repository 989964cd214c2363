"""The dependents of a job: objects and worlds beside the pods that plans scale.

upkeep           services, a PodGroup, gates, and the places where agents find each other
gangs            pods whose gates are opened together, and that let go together
roles            replicas whose size no plan changes: parameter servers, chief, evaluator
autoscalers      HorizontalPodAutoscalers and VerticalPodAutoscalers that target a job
rigid, worlds    worlds of jobs that no agent of ours runs, as their pods show them
own_pod          an operator's knowledge of the pod that it runs in
"""
