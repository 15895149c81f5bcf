"""What `ottla.spark` offers is there when it is asked for, and stays what it is."""

from importlib import import_module

import ottla.spark


def test_a_module_does_not_take_the_place_of_a_function() -> None:
    """An import puts a module into its package under its own name, which must not be one that the package offers."""
    for home in ottla.spark._HOMES.values():
        import_module(f"ottla.spark.{home}")
    for name in ottla.spark.__all__:
        assert callable(getattr(ottla.spark, name)), name
    assert sorted(ottla.spark._HOMES) == sorted(ottla.spark.__all__)
