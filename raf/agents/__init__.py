"""Agents and their conversations."""
