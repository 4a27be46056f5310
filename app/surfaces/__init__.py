"""The surfaces that jobs are spoken of on, told apart in one place: what a body of any of them asks for, and
what any job looks like on its own. It stores nothing and knows no HTTP.
"""
