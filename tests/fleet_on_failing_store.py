"""Fleet batches on a store that is busy, loses answers and cuts them off: a scenario of `lying_s3.py`."""

from fleet_scene import Failed, Fleet, Host, until


def play(larder, folder, repository, bucket):
    """Workers of two hosts and a planner share nothing but the store. On the first day, a worker is killed too."""
    access = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    hosts = [Host(name, **access) for name in ("a", "b")]
    planner = Host("planner", **access)
    fleet = Fleet(larder, folder, repository, hosts, planner, images=2, shared=1, size=400_000)
    rules = [
        {"do": "lost", "p": 0.08, "verb": ["PUT", "DELETE"]}, {"do": "late", "s": 0.5, "p": 0.12, "verb": ["PUT"]},
        {"do": "cut", "p": 0.05, "verb": ["GET", "LIST"]}, {"do": "reset", "p": 0.02},
        {"do": "status", "code": 503, "error": "SlowDown", "p": 0.1},
    ]
    try:
        for day in range(2):
            bucket.control(rules)
            workers = [fleet.work(host, "--timeout", "60s") for host in hosts]
            fleet.plan("--queue", "store", "--timeout", "60s", claim=5, task=60)
            if day == 0:
                until(bucket.keys, "/done/send/0/0", fleet=fleet)
                workers[0].kill(again=True)
            code, messages = fleet.ended()
            hits = {rule["do"]: rule.get("hits", 0) for rule in bucket.rules}
            if not all(hits.values()):
                raise Failed(f"too little happened: {hits}")
            bucket.heal()
            # One that was not killed has time enough.
            fleet.judge(code, messages, expect=[name for name in fleet.images if day == 1 or name.startswith("b")])
            fleet.close(lambda: [key for key in bucket.keys() if "/fleet/" in key])
            fleet.change()
        fleet.restore_all()
    finally:
        for worker in fleet.workers:
            worker.end()
