"""The commands of README and tutorial, run as a reader runs them, with fewer steps; and what pages say of others."""
