"""What a user of torch also types: functions made of the ops beside this folder, a line or a few each.

Those with a derivative worth checking declare cases, as ops do. A few are ops of their own, where autograd's derivative
of the formula would lose digits."""
