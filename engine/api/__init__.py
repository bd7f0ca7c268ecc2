"""What the engines are asked over HTTP: OpenAI's API under /v1, the page's own under /api."""
