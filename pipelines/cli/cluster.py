"""Commands for the jobs of a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.shared import STORE, Data, Json, Root, Specs, Wide, app, note, say
from pipelines.report.render import show

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

# Jobs are imported by the commands that run them: `ubert --help` waits for none of their libraries.

NOT_JOBS = {"submit", "jobs"}  # commands that can't run as jobs
DASHBOARD = "http://127.0.0.1:8265"
Dashboard = Annotated[
    str,
    typer.Option(
        envvar=["RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"],
        metavar="URL",
        help="Connect to this dashboard of a cluster.",
    ),
]


@app.command(context_settings={"allow_interspersed_args": False})
def submit(
    command: Annotated[list[str], typer.Argument(help="Run this command, with its options.")],
    address: Dashboard = DASHBOARD,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the end of the job.")] = False,
    root: Root = STORE,
    data: Data = None,
    specs: Specs = None,
) -> None:
    """Run a command as a job on a Ray cluster.

    It uploads code and specs, shows the log of the job and exits with its code. Name the store and the mirror as
    the machines of the cluster see them. Ctrl-C leaves the job running. If the dashboard is on another machine,
    open a tunnel to it.

    Example: ubert submit --root s3://bucket/store -- ingest --all

    Example: ubert submit --detach -- pretrain first-mixture --workers 8
    """
    from pipelines import jobs
    from pipelines.specs import specs_folder

    known = sorted(
        {one.name or one.callback.__name__ for one in app.registered_commands if one.callback} - NOT_JOBS
    )
    if command[0] not in known:
        raise typer.BadParameter(f"{command[0]!r} can't run as a job; expected one of {', '.join(known)}")
    client = jobs.connect(address)
    job = jobs.submit(client, command, root=root, data=data, specs=specs_folder(specs))
    note(f"job {job} at {address}, store {root.absolute()}")
    if detach:
        note(_how_to_follow(job, address))
    else:
        _follow(client, job, address)


@app.command("jobs")
def list_jobs(
    job: Annotated[str | None, typer.Argument(help="Follow the job of this id; default: list all.")] = None,
    address: Dashboard = DASHBOARD,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the job.")] = False,
    as_json: Json = False,
    wide: Wide = False,
) -> None:
    """List, follow or stop the jobs of a cluster.

    Example: ubert jobs

    Example: ubert jobs pretrain-4f2a91 --stop
    """
    from pipelines import jobs

    if stop and job is None:
        raise typer.BadParameter("--stop needs the id of a job; `ubert jobs` lists the ids")
    if as_json and job is not None:
        raise typer.BadParameter("--json is for the list of jobs; a job's log is text")
    client = jobs.connect(address)
    if job is None:
        show(jobs.listed(client), as_json=as_json, wide=wide, optional=["minutes", "began (UTC)"])
    elif stop:
        running = jobs.stop(client, job)
        say(f"job {job}: {'asked to stop' if running else 'had ended already'}")
    else:
        note(f"job {job}: {jobs.status(client, job)}")
        _follow(client, job, address)


def _follow(client: JobSubmissionClient, job: str, address: str) -> None:
    """Show a job's log, and exit with its code."""
    from pipelines import jobs

    try:
        code = jobs.follow(client, job)
    except KeyboardInterrupt:
        note(_how_to_follow(job, address))
        raise typer.Exit(130) from None
    raise typer.Exit(code)


def _how_to_follow(job: str, address: str) -> str:
    command = f"ubert jobs {job}" + (f" --address {address}" if address != DASHBOARD else "")
    return f"the job continues; follow it with `{command}`, stop it with `{command} --stop`"
