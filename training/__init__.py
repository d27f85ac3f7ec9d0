"""How the embedded demo checkpoints are trained. `checkpoints/demo/README.md` says what came out.

Nothing of this runs when something is measured. The modules need the environment of the mlx-vlm
server (`workflow/envs/mlx-vlm.lock`), because they train its own model classes.
"""
