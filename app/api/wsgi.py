"""What gunicorn serves."""

from app.api import create_app, draining

app = create_app()
draining.begin_on_signals()
