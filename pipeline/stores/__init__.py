"""The stores on MongoDB, one collection a module, behind `pipeline.ports`."""
