"""Programs made from programs by the rules of their ops: derivatives, batches."""
