"""Diagnosis of failures: finds the operator, instruction or machine that is the cause."""
