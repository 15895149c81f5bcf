"""The names that `ottla.spark` exports are there when they are used, and do not change."""

from importlib import import_module

import ottla.spark


def test_a_module_does_not_take_the_place_of_a_function() -> None:
    """An import sets a module as an attribute of its package, which must not hide an exported function."""
    for home in ottla.spark._HOMES.values():
        import_module(f"ottla.spark.{home}")
    for name in ottla.spark.__all__:
        assert callable(getattr(ottla.spark, name)), name
    assert sorted(ottla.spark._HOMES) == sorted(ottla.spark.__all__)
