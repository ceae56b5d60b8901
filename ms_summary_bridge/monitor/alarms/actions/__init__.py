"""What is done when an alarm is raised: outside of the training a command and a webhook, inside of it the rest."""
