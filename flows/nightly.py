"""The flows that prefect.yaml deploys. Change them here, or call them from a flow of your own."""

from kp_batch.flows import import_and_rescore, rescore

__all__ = ["import_and_rescore", "rescore"]
