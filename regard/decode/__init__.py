"""Writing token by token, over the step protocol that all models which write share."""
