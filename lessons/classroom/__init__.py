"""A class: its learners, what they answered, and what a teacher sees of it.

No box of the map, no counterpart in vLLM. Where a teacher's secret is set (`settings`), the server
keeps a register in a database (`database`, `models`, `migrations`): who is in which class
(`register`), each attempt for good (`attempts`), which labs are open (`rules`). How far everybody
is gets reckoned from the attempts (`standing`), and written out (`export`).
"""
