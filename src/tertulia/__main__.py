"""`python -m tertulia`."""

from tertulia.cli import main

if __name__ == "__main__":
    main()
