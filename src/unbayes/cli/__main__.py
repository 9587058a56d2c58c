"""`python -m unbayes.cli` is `unbayes`."""

from unbayes.cli import main

if __name__ == "__main__":
    main()
