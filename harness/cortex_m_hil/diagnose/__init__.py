"""Diagnosis beyond the verdict: which operator, instruction, commit or machine is the cause."""
