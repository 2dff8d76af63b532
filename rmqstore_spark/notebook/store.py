"""What is in a store, on a notebook's page: as `rmqstore show`, with the largest topics and the groups that lag."""

from rmqstore_spark.amounts import duration_text, size_text
from rmqstore_spark.errors import RmqStoreError, counted
from rmqstore_spark.jobs.summary import GroupSummary, Summary, TopicSummary
from rmqstore_spark.jobs.summary_text import facts, last_text
from rmqstore_spark.notebook.markup import bars, cell, table, text

_TOPICS, _GROUPS, _PROBLEMS = 15, 10, 5  # lines
_NAMED = 4  # topics of a group


def store_html(root: str, summary: Summary | RmqStoreError) -> str:
    """A store; of one that cannot be read, why."""
    if isinstance(summary, RmqStoreError):
        return f"<div><b>{text(root)}</b><p>{text(str(summary))}</p></div>"
    lines = "".join(f"<div>{text(line)}</div>" for line in facts(summary, _PROBLEMS))
    return f"<div><b>{text(root)}</b>{lines}{_topics(summary.topics)}{_groups(summary.groups)}</div>"


def _topics(topics: list[TopicSummary]) -> str:
    if not topics:
        return ""
    shown = sorted(topics, key=lambda topic: -(topic.nbytes or 0))
    size = "bytes" if all(topic.is_exact for topic in topics) else "about"
    heads = ("topic", "kind", "queues", "messages", size, "last message (UTC)", "rate over that time")
    rows = [
        (
            cell(text(topic.topic)),
            cell(topic.kind),
            cell(f"{topic.queues:,}", is_number=True),
            cell(f"{topic.messages:,}", is_number=True),
            cell("" if topic.nbytes is None else size_text(topic.nbytes), is_number=True),
            cell(last_text(topic), is_number=True),
            cell(bars(topic.rates, "messages in each part of that time") if topic.rates else ""),
        )
        for topic in shown[:_TOPICS]
    ]
    rest = shown[_TOPICS:]
    messages = counted(sum(topic.messages for topic in rest), "message")
    return table(heads, rows) + (f"<div>and {counted(len(rest), 'other topic')} with {messages}</div>" if rest else "")


def _groups(groups: list[GroupSummary]) -> str:
    if not groups:
        return ""
    rows = [
        (
            cell(text(group.group)),
            cell(f"{group.lag:,}", is_number=True),
            cell("" if group.lag_millis is None else duration_text(group.lag_millis), is_number=True),
            cell(text(_named(group.topics))),
        )
        for group in groups[:_GROUPS]
    ]
    rest = len(groups) - _GROUPS
    more = f"<div>and {counted(rest, 'group')} that lag less</div>" if rest > 0 else ""
    return table(("consumer group", "lag", "behind by", "topics"), rows) + more


def _named(topics: list[str]) -> str:
    more = len(topics) - _NAMED
    return ", ".join(topics[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
