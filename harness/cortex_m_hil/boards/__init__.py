"""Shared boards: leases, health records and tools of boards, and virtual (simulated) boards."""
