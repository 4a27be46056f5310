"""How many tokens a prompt has, before anything is asked of an engine. It must give what the engine counts; it
loads neither the engine nor its libraries.
"""

from app.tokens.counting import check, count

__all__ = ["check", "count"]
