"""Orders together with their customers: a table that follows the changes of both.

An order names its customer by a foreign key. When a customer moves, all of their orders are written again.
"""

from ottla.streams import App

app = App("order-view")
orders = app.table("shop-orders", key_column="order_id", value="customer_id string, amount double")
customers = app.table("shop-customers", key_column="customer_id", value="name string, city string")
orders.join(customers, on="customer_id", name="orders-with-customers").to("orders-view")
