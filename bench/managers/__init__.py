"""List managers of others, each set up as its own pages say, beside a Stentor that carries their mail."""
