"""The plain service: a first version, as one would write it with FastAPI, pydantic and SQLAlchemy's
ORM.

Run ``uvicorn benchmarks.ingest.plain:app`` with ``DATABASE_URL``. The service checks no tokens,
does not correct for senders' clocks, has no limits, and stores a repeated sample twice.
"""

import os
from datetime import datetime

import sqlalchemy as sa
from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

engine = sa.create_engine(os.environ["DATABASE_URL"], pool_size=20, max_overflow=20)


@sa.event.listens_for(engine, "connect")
def durable(connection, _):  # type: ignore[no-untyped-def]
    """Make SQLite as durable as Brain does: a sample is acknowledged only once it is on disk."""
    if engine.dialect.name == "sqlite":
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")


class Base(DeclarativeBase): ...


class Sample(BaseModel):
    job: str
    source: str
    measured_at: datetime
    sequence: int
    replica: int
    local_rank: int
    rank: int
    epoch: int
    generation: int
    phase: str
    nodes: int
    replicas: int
    processes: int
    accelerator: str
    local_batch: int | None
    accumulation: int
    steps: int
    step: int
    step_seconds: float
    step_seconds_mean: float
    data_wait_seconds: float
    examples_per_second: float | None


class Row(Base):
    __tablename__ = "samples"
    __table_args__ = (sa.Index("ix_samples_job", "job", "measured_at"),)
    source: Mapped[str] = mapped_column(primary_key=True)
    measured_at: Mapped[datetime] = mapped_column(sa.DateTime(timezone=True), primary_key=True)
    job: Mapped[str]
    sequence: Mapped[int]
    replica: Mapped[int]
    local_rank: Mapped[int]
    rank: Mapped[int]
    epoch: Mapped[int]
    generation: Mapped[int]
    phase: Mapped[str]
    nodes: Mapped[int]
    replicas: Mapped[int]
    processes: Mapped[int]
    accelerator: Mapped[str]
    local_batch: Mapped[int | None]
    accumulation: Mapped[int]
    steps: Mapped[int]
    step: Mapped[int]
    step_seconds: Mapped[float]
    step_seconds_mean: Mapped[float]
    data_wait_seconds: Mapped[float]
    examples_per_second: Mapped[float | None]


Base.metadata.create_all(engine)
app = FastAPI()


@app.post("/telemetry")
def take(samples: list[Sample]) -> dict[str, int]:
    """Store samples, then answer."""
    with Session(engine) as session:
        session.add_all([Row(**sample.model_dump()) for sample in samples])
        session.commit()
    return {"stored": len(samples)}
