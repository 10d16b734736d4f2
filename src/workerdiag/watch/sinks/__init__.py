"""
Where notices go: a function, a signed webhook, Slack, PagerDuty, Teams, e-mail, Apprise.
"""
