"""PostgreSQL: one module per aggregate, SQL in files."""
