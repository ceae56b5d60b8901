"""Incidents: what many ranks and their watchdogs raise alarms for is told to the outside once."""
