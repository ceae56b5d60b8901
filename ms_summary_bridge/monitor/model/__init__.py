"""The words of the monitor: settings, samples, alerts, facts."""
