"""Makes draft models for a target: text, distillation, acceptance, card. Reached only by `outrider train`."""
