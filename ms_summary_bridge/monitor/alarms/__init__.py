"""From a sample to an action: rules, alarms, and what is done about them."""
