"""What tests of Harmony share."""
