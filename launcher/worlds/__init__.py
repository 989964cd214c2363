"""Parts of changing a world: what is known, checkpoints kept, words with Brain, who coordinates."""
