"""Write token by token, by the step protocol that all models that write share."""
