"""What the server tells of itself: discovery, OpenAPI, tables."""
