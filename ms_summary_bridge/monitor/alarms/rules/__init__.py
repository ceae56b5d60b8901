"""The rules of alarms: small classes that see numbers, one point after the other, and say when something is wrong."""
