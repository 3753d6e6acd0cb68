"""The methods of tensors."""
