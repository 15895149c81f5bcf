"""Page views with the country and the plan of their user, as the table of users is when the view comes.

A user who moves to another country changes the views that come afterwards, not those before. A view by somebody whom
the table does not know goes on without a country.
"""

from ottla.streams import App

app = App("page-views")
views = app.stream("views", value="user string, page string")
users = app.table("users", key_column="user", value="country string, plan string")
views.join(users, on="user", how="left").to("views-enriched")
