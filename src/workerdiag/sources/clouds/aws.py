"""Code that the AWS sources share: the region, and boto3 clients with a deadline."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from workerdiag.deadline import Deadline
from workerdiag.model.scene import Scene
from workerdiag.sources.internals import aws_region
from workerdiag.sources.machine import Sdk, import_sdk, known_machine_names, request_timeout_s

#: Part of a response as botocore decodes it.
AwsAnswer = Mapping[str, Any]
#: Private DNS names of instances (Amazon EC2 user guide, "EC2 instance hostname types"): in
#: us-east-1 ``ip-10-0-1-2.ec2.internal``, elsewhere ``ip-10-0-1-2.eu-west-1.compute.internal``;
#: resource names have the instance id in place of the address. Some images use the first part only.
EC2_NAME = re.compile(
    r"(?:ip-(?P<ip>\d{1,3}(?:-\d{1,3}){3})|(?P<id>i-[0-9a-f]{8,17}))"
    r"(?:\.(?P<region>[a-z]{2}(?:-[a-z]+){1,2}-\d)\.compute\.internal|(?P<first>\.ec2\.internal))?"
)
_ARN_REGION = re.compile(r"arn:[\w-]+:ecs:(?P<region>[\w-]+):")


def region_of(scene: Scene) -> str | None:
    """Return the cluster's region from its object, hosts or environment; None leaves it to the SDK."""
    cluster = scene.cluster
    arn = _ARN_REGION.match(str(getattr(cluster, "cluster_arn", "") or ""))
    stated = getattr(cluster, "region", None) or aws_region(cluster)
    if stated or arn:
        return str(stated or (arn and arn["region"]))
    for name in map(EC2_NAME.fullmatch, known_machine_names(scene)):
        if name and (name["region"] or name["first"]):
            return name["region"] or "us-east-1"
    return scene.variable("AWS_REGION") or scene.variable("AWS_DEFAULT_REGION")


def aws_client(service: str, region: str | None, deadline: Deadline) -> Sdk:
    """Return a boto3 client with its own session, no retries, and time-outs within *deadline*."""
    request_s = request_timeout_s(deadline)
    config = import_sdk("botocore.config").Config(
        connect_timeout=request_s, read_timeout=request_s, retries={"total_max_attempts": 1}
    )
    session = import_sdk("boto3.session").Session()
    return session.client(service, region_name=region or session.region_name, config=config)


def clock_ahead_s(answer: AwsAnswer) -> float:
    """Return by how many seconds AWS's clock (header ``Date``) is ahead of ours; 0 if unknown."""
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
    try:
        ahead = parsedate_to_datetime(date).timestamp() - time.time()
    except ValueError:
        return 0.0
    return float(round(ahead))
