"""The process beside a training that sees when it hangs or dies."""
