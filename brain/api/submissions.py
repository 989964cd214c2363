"""Checks of submitted jobs, and the pools that they go to."""

from brain.api.deps import Context
from brain.api.files import check_below, directory_of
from brain.errors import BadInput
from brain.types.job import JobDocument, Secret
from brain.types.record import Principal, Role
from brain.types.resources import PoolName

#: The pool of a single machine.
LOCAL = PoolName("local")


def check_accelerators(document: JobDocument) -> None:
    """Raise BadInput for groups that name an accelerator: this machine has one type."""
    for name, size in document.groups.items():
        if size.accelerator is not None:
            field = f"groups.{name}.accelerator"
            raise BadInput(
                f"{field} {size.accelerator} has no effect in the pool {LOCAL}, a machine with one "
                "type of accelerator; leave it out, or submit the job to the pool of a cluster",
                field=field,
            )


def pool_of(here: Context, named: str) -> PoolName:
    """Return the pool of a submission.

    Raises:
        BadInput: no scaler has registered the named pool, or none is named and there are several.
    """
    with here.stores.transaction(read_only=True) as tx:
        pools = tx.nodes.pools()
    if named in ("", LOCAL) and (named or not pools or LOCAL in pools):
        return LOCAL
    listed = ", ".join(pools) or "none"
    if not named and len(pools) > 1:
        raise BadInput(
            f"pool is missing, and Brain serves several pools: {listed}; name one of them",
            field="pool",
        )
    if named and named not in pools:
        raise BadInput(
            f"pool {named!r} has no scaler; pools with a scaler: {listed}; name one of them, "
            f"or start brain-scale --kubernetes --pool {named} in its cluster",
            field="pool",
        )
    return PoolName(named) if named else pools[0]


def check_references(document: JobDocument, who: Principal) -> None:
    """Raise BadInput for a value of the environment that this machine cannot read, or that the
    service may not read for this person.
    """
    for name, value in document.environment.items():
        if isinstance(value, Secret) and value.from_secret is not None:
            raise BadInput(
                f"environment.{name}.fromSecret {value.from_secret!r} names a Kubernetes "
                "Secret, but this pool is one machine; use fromFile",
                field=f"environment.{name}.fromSecret",
            )
        if isinstance(value, Secret) and value.from_file is not None:
            field = f"environment.{name}.fromFile"
            if who.role is not Role.ADMIN:
                raise BadInput(
                    f"{field} would be read by the service, which can read files that "
                    f"{who.name} may not; give the value itself, which the service stores "
                    "encrypted",
                    field=field,
                )
            check_below(directory_of(document), value.from_file, field=field)
