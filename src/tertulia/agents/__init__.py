"""Who answers: the model loop and the models it talks to."""
