"""The successor measure: Monte-Carlo estimation and storage."""
