"""What only a card can prove, in ten minutes: ``make test-gpu`` (docs/guides/gpu-tests.md)."""
