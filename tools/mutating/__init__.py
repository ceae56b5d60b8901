"""Mutation testing: one small fault after the other is put into a module, and the tests must notice each.

`mutants` makes the faults, with the operators of mutmut; `reach` finds which tests run which lines, and how long they
take; `trial` tries the mutants of one part in forks of a process in which all is imported; `explained` are those that
no test can notice, each with the reason; `report` keeps and shows what came of it.
"""
