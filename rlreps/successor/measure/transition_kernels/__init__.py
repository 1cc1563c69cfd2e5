"""The successor measure of PuddleWorld from one-step transition probabilities."""
