"""The scaler as a Kubernetes operator. Only ``brain-scale --kubernetes`` loads this package."""
